"""Where written bytes are amplified, between application and NAND. Pure."""

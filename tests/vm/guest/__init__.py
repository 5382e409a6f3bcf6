"""What runs in a guest: tests of drivers and the recipes they share."""

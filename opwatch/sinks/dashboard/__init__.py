"""The dashboard as rows of text with tones, independent of terminal and clock."""

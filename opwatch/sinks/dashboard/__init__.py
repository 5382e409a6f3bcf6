"""The dashboard as rows of pieces with their tones: no terminal in it, and no clock."""

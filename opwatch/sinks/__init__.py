"""Where observations and answers go: lines and documents for people and for programs, and other formats."""

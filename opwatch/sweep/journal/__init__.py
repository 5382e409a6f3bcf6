"""What a sweep was asked to do and has done so far, kept so that it can go on after anything."""

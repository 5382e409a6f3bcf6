"""Whose NAND bytes a drive programs: shares of the owners of a recorded history."""

"""Tests of sweep journals and the files beside them."""

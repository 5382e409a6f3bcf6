"""Predictions from the recorded writes of a real system."""

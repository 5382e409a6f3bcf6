"""Prepare the data of a report and name the changes in a recording. Pure."""

"""The `.opw` file: what a run consisted of, kept so that it can be looked at again."""

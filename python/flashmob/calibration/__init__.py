"""Fitting a device's profile to what a drive was measured to do, and saying how far the two are apart."""

"""Side by side in one run: ratios, never assertions in seconds."""

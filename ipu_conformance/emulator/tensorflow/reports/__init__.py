"""Report folders: profiles and pages about compiled programs."""

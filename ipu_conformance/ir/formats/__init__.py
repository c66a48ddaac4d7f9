"""The two JSON formats, each with its reader and its writer."""

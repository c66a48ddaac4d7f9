"""The operations behind the vendor's data sets."""

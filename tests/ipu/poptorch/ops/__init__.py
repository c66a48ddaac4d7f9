"""Cases of the vendor's ops."""

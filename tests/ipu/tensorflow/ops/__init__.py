"""Cases of the vendor's ops and layers."""

"""Cases that train the suite's nets and the workload."""

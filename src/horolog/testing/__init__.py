"""Public fakes and fixtures: simulated clock, faulty disk, simulator, a broker for tests."""

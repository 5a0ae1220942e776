"""What monitoring of many nodes costs: simulated exporters, and a real Prometheus."""

"""The dashboards without Grafana: their queries asked of a Prometheus, and drawn as one page."""

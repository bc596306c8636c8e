"""The Grafana dashboard: what it shows, of which kinds of panels, and how Grafana wants that written."""

"""Events about the Node and its condition `DevicesReady`: what is written to the API server, and when."""

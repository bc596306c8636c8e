"""Where devices come from: one module per kind of host device."""

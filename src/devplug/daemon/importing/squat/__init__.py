"""The devices of squat/generic-device-plugin: their groups, their USB gadgets, and resources made of them."""

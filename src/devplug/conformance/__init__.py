"""The judge: numbered checks of any device plugin, in any language, by playing the kubelet against it."""

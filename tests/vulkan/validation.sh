#!/bin/sh
# Runs a program under Khronos' validation layer, its synchronization checks switched on, and fails on anything that the
# layer says against the specification. usage: validation.sh PROGRAM [ARGUMENT...]
set -eu
layer=VK_LAYER_KHRONOS_validation
found=
for folder in /usr/share/vulkan /usr/local/share/vulkan /etc/vulkan; do
    [ -e "$folder/explicit_layer.d/VkLayer_khronos_validation.json" ] && found=yes
done
if [ -z "$found" ]; then
    echo "$layer is not installed (vulkan-validationlayers)"
    exit 77
fi
result=0
said=$(VK_INSTANCE_LAYERS=$layer VK_LAYER_ENABLES=VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT \
    VK_LOADER_DEBUG=layer "$@" 2>&1) || result=$?
[ $result -eq 0 ] || { echo "$said"; exit $result; }
case $said in
*"adding layers \"$layer\""* | *"Insert instance layer \"$layer\""* | *"$layer"*) ;;
*) echo "the layer was not loaded"; exit 1 ;;
esac
if echo "$said" | grep -E 'VUID-|SYNC-HAZARD'; then
    exit 1
fi

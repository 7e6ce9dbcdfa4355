BERTH_CUDA_LIBRARY=/nowhere/c.so BERTH_HIP_LIBRARY=/nowhere/h.so BERTH_OPENCL_LIBRARY=/nowhere/o.so berth devices --json > json; sed -n "2p; /\"missing\"/,\$p" json

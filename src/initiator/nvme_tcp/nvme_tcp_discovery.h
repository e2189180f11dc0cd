// Asks a discovery controller over NVMe/TCP what there is (Base 2.0c, 3.1.2.3.3 and 5.16.1.23).
//
// Blocking, for any thread: one connection, made and closed here.
#pragma once

#include <vector>

#include "initiator/nvme_tcp/nvme_tcp_options.h"
#include "nvme/fabrics.h"

namespace flashmob::initiator {

// The entries of the discovery log page; the options' subsystem is not used. Throws ConfigError, naming the address,
// where nobody answers as a discovery controller does.
std::vector<nvme::DiscoveryEntry> discover(const NvmeTcpOptions& options);

}  // namespace flashmob::initiator

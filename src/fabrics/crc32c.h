// The digest of NVMe/TCP PDUs (NVMe TCP transport 1.0c, 3.3.1.1) is CRC32C. Pure functions; any thread.
#pragma once

#include "base/crc32c.h"

namespace flashmob::fabrics {

using flashmob::crc32c;

}  // namespace flashmob::fabrics

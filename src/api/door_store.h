// The store behind a door of another process: what it is like, and making it verifiable through the door.
//
// One thread, which owns the driver.
#pragma once

#include <atomic>
#include <cstdint>

#include "driver/namespaces.h"
#include "driver/nvme_driver.h"
#include "load/verifier.h"

namespace flashmob::api {

// The first active namespace of a controller.
struct DoorNamespace {
  driver::BlockNamespace blocks;
  std::uint32_t max_transfer_bytes = 0;  // the controller's, 1 MiB at most
};

// Asks Identify. Throws ConfigError where there is no namespace or one whose blocks carry metadata.
DoorNamespace examine_namespace(driver::NvmeDriver& driver);

// How long answers are waited for: until `silence_ns` without any, or shortly after somebody no longer wants to wait.
struct Patience {
  std::uint64_t silence_ns;
  const std::atomic<bool>& cancelled;
};

// Fills the namespace with generation 0 of the content of media/block_content.h, if it is safe to do so: blocks spread
// over all of it are looked at first, and they must be zero or hold such content already, or the store is left as it
// is. A store that cannot be written is taken for what the blocks show. `fill` false writes nothing.
// Throws std::runtime_error where the device fails commands or is gone, NvmeTimeout where it loses writes.
load::TruthSource prepare_store(driver::NvmeDriver& driver, const DoorNamespace& ns, std::uint64_t seed, bool fill,
                                std::atomic<double>& fraction, const Patience& patience);

}  // namespace flashmob::api

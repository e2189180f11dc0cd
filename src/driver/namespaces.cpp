#include "driver/namespaces.h"

#include <algorithm>
#include <span>

#include "driver/data_buffer.h"
#include "nvme/identify.h"
#include "nvme/identify_controller.h"

namespace flashmob::driver {
namespace {

constexpr std::uint8_t kMaxShift = 63;

template <class T>
T identified(NvmeDriver& driver, nvme::Cns cns, std::uint32_t nsid) {
  T data{};
  driver.identify(static_cast<std::uint8_t>(cns), nsid, std::as_writable_bytes(std::span(&data, 1)));
  return data;
}

}  // namespace

BlockNamespace namespace_of(std::uint32_t nsid, const nvme::IdentifyNamespace& identify) {
  const nvme::LbaFormat& format = identify.lbaf[nvme::lba_format_index(identify.flbas)];
  return {.nsid = nsid,
          .lba_shift = std::min(format.lbads, kMaxShift),
          .metadata_bytes = format.ms,
          .extended_metadata = (identify.flbas & nvme::kFlbasExtendedMetadata) != 0,
          .blocks = identify.nsze};
}

BlockNamespace identify_namespace(NvmeDriver& driver, std::uint32_t nsid) {
  return namespace_of(nsid, identified<nvme::IdentifyNamespace>(driver, nvme::Cns::identify_namespace, nsid));
}

std::vector<std::uint32_t> active_namespaces(NvmeDriver& driver) {
  std::vector<std::uint32_t> found;
  for (std::uint32_t after = 0;;) {
    const auto list = identified<nvme::NamespaceList>(driver, nvme::Cns::active_namespace_list, after);
    for (const std::uint32_t nsid : list.nsid) {
      // The list ends with a zero; one that does not rise would be asked for without end.
      if (nsid <= after) return found;
      found.push_back(after = nsid);
    }
  }
}

std::uint64_t max_transfer_bytes(NvmeDriver& driver) {
  const auto identify = identified<nvme::IdentifyController>(driver, nvme::Cns::identify_controller, 0);
  // In pages of CAP.MPSMIN, which is 4096 for every controller that the driver accepts.
  if (identify.mdts == 0 || identify.mdts > kMaxShift - 12) return UINT64_MAX;
  return PrpLists::kPageBytes << identify.mdts;
}

}  // namespace flashmob::driver

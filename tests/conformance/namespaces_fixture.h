// Two controllers on one subsystem, and the commands that create, delete, attach and detach their namespaces.
#pragma once

#include <algorithm>

#include "conformance/device_fixture.h"
#include "nvme/identify_controller.h"
#include "nvme/identify_namespace.h"

namespace flashmob::conformance {

class NamespacesTest : public DeviceTest {
 protected:
  explicit NamespacesTest(unsigned controllers = 2) : DeviceTest(suite::small_device(), controllers) {}

  // The new namespace's identifier, or 0 with `status` set.
  std::uint32_t create(std::uint64_t blocks, std::uint8_t flbas, Status& status, bool shared = true) {
    nvme::IdentifyNamespace data{};
    data.nsze = data.ncap = blocks;
    data.flbas = flbas;
    data.nmic = shared ? nvme::kNmicShared : 0;
    Sqe sqe = make(AdminOpcode::namespace_management);
    const AdminResult result = driver().admin(sqe, std::as_writable_bytes(std::span(&data, 1)), false);
    status = status_of(result);
    return status == Status::success ? result.dw0 : 0;
  }
  std::uint32_t create(std::uint64_t blocks, std::uint8_t flbas = 0, bool shared = true) {
    Status status;
    const std::uint32_t nsid = create(blocks, flbas, status, shared);
    EXPECT_EQ(status, Status::success);
    return nsid;
  }
  Status remove(std::uint32_t nsid) {
    Sqe sqe = make(AdminOpcode::namespace_management, nsid);
    sqe.cdw10 = 1;
    return admin(sqe);
  }
  Status attach(std::uint32_t nsid, const std::vector<std::uint16_t>& controllers, bool detach = false) {
    nvme::ControllerList list{};
    list.num = static_cast<std::uint16_t>(controllers.size());
    std::copy(controllers.begin(), controllers.end(), list.identifier);
    Sqe sqe = make(AdminOpcode::namespace_attachment, nsid);
    sqe.cdw10 = detach ? 1 : 0;
    return admin_write(sqe, std::as_bytes(std::span(&list, 1)));
  }
  Status detach(std::uint32_t nsid, const std::vector<std::uint16_t>& controllers) {
    return attach(nsid, controllers, true);
  }
  std::uint16_t id(unsigned index) { return host(index).controller.cntlid(); }
  std::uint64_t unallocated() { return identify<nvme::IdentifyController>(nvme::Cns::identify_controller).unvmcap.low; }
  // One read of block 0 through a controller's queue.
  Status touch(std::uint32_t nsid, unsigned index = 0) {
    Buffer target(host(index).door, 4096);
    return status_of(run(target.attach(make(NvmOpcode::read, nsid, 0, 1), 4096), index));
  }
  std::vector<std::uint32_t> active(unsigned index) {
    nvme::NamespaceList list;
    driver(index).identify(static_cast<std::uint8_t>(nvme::Cns::active_namespace_list), 0,
                           std::as_writable_bytes(std::span(&list, 1)));
    return {list.nsid, std::find(std::begin(list.nsid), std::end(list.nsid), 0u)};
  }
};

}  // namespace flashmob::conformance

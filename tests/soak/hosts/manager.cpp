// Namespaces that are created, attached, written, formatted, protected, detached and deleted, again and again, and a
// shared one that is formatted while others use it.
#include <cstring>
#include <span>

#include "nvme/admin_command.h"
#include "nvme/features.h"
#include "nvme/identify.h"
#include "nvme/identify_controller.h"
#include "nvme/identify_namespace.h"
#include "nvme/status.h"
#include "soak/hosts/host.h"

namespace flashmob::soak {
namespace {

using nvme::AdminOpcode;
using nvme::NvmOpcode;
using nvme::Status;

class Manager {
 public:
  Manager(const HostPlan& plan, Ledger& ledger) : plan_(plan), ledger_(ledger), random_(plan.seed), device_(plan) {
    ledger_.add(Count::attaches);
    nvme::IdentifyController data;
    device_.driver().identify(static_cast<std::uint8_t>(nvme::Cns::identify_controller), 0,
                              std::as_writable_bytes(std::span(&data, 1)));
    controller_ = data.cntlid;
    clear_away();
  }

  void run() {
    const std::uint64_t end_ns = device_.now_ns() + static_cast<std::uint64_t>(plan_.seconds * 1e9);
    while (!is_told_to_end() && device_.now_ns() < end_ns) {
      one_life();
      // The shared one, while others read and write it.
      expect(device_.admin(AdminOpcode::format_nvm, plan_.nsid, random_() % 2), Status::success, "a Format under load");
      ledger_.add(Count::formats);
    }
    if (!plan_.sudden) device_.shutdown();
  }

 private:
  void expect(unsigned status, Status right, const std::string& what) const {
    if (status == static_cast<unsigned>(right)) return;
    throw Wrong(what + " of namespace " + std::to_string(nsid_) + " ended with status " + std::to_string(status) +
                " instead of " + std::to_string(static_cast<unsigned>(right)));
  }

  // What a predecessor had when it was killed: namespaces stay. Ours are those of an even number of pages, or an odd
  // one.
  void clear_away() {
    nvme::NamespaceList list{};
    device_.driver().identify(static_cast<std::uint8_t>(nvme::Cns::allocated_namespace_list), plan_.nsid,
                              std::as_writable_bytes(std::span(&list, 1)));
    for (const std::uint32_t nsid : list.nsid) {
      if (nsid == 0) break;
      nvme::IdentifyNamespace data{};
      try {
        device_.driver().identify(static_cast<std::uint8_t>(nvme::Cns::allocated_namespace), nsid,
                                  std::as_writable_bytes(std::span(&data, 1)));
      } catch (const driver::NvmeError&) {
        continue;  // another manager has deleted it meanwhile
      }
      const std::uint64_t bytes = data.nsze << data.lbaf[nvme::lba_format_index(data.flbas)].lbads;
      if (bytes == 0 || bytes / kPageBytes % 2 != plan_.part % 2) continue;
      nsid_ = nsid;
      attach(true);
      set_protection(0);
      expect(device_.admin(AdminOpcode::namespace_management, nsid, nvme::kNamespaceDelete), Status::success,
             "the deletion of what was left");
      ledger_.add(Count::deletes);
    }
  }

  void one_life() {
    create(random_() % 2);
    attach(true);
    check(0);  // nothing of those that were there before
    write(++number_);
    check(number_);
    if (random_() % 2 == 0) {
      format(random_() % 2);
      check(0);
      write(++number_);
    }
    if (random_() % 2 == 0) protect();
    attach(false);
    if (device_.run(NvmOpcode::read, nsid_, 0, 1) == 0) throw Wrong("a detached namespace was read");
    attach(true);
    check(number_);
    expect(device_.admin(AdminOpcode::namespace_management, nsid_, nvme::kNamespaceDelete), Status::success,
           "a deletion");
    ledger_.add(Count::deletes);
  }

  void create(std::uint32_t format) {
    lba_bytes_ = format == 0 ? 512 : 4096;
    pages_ = 2 * (1 + random_() % 16) + plan_.part % 2;
    nvme::IdentifyNamespace data{};
    data.nsze = data.ncap = std::uint64_t{pages_} * kPageBytes / lba_bytes_;
    data.flbas = static_cast<std::uint8_t>(format);
    expect(
        device_.admin(AdminOpcode::namespace_management, 0, 0, 0, std::as_writable_bytes(std::span(&data, 1)), &nsid_),
        Status::success, "a creation");
    ledger_.add(Count::creates);
  }
  void attach(bool attached) {
    nvme::ControllerList list{};
    list.num = 1;
    list.identifier[0] = controller_;
    expect(device_.admin(AdminOpcode::namespace_attachment, nsid_, attached ? 0 : 1, 0,
                         std::as_writable_bytes(std::span(&list, 1))),
           Status::success, "an attachment");
    ledger_.add(Count::attachments);
  }
  // With writes in flight, which end one way or the other.
  void format(std::uint32_t format) {
    for (std::uint32_t slot = 0; slot < Attachment::kSlots; ++slot) {
      nvme::Sqe& sqe = device_.submit(slot, NvmOpcode::write, nsid_);
      std::memset(device_.words(slot), 0, kPageBytes);
      sqe.cdw12 = kPageBytes / lba_bytes_ - 1;
    }
    device_.queue().ring_sq();
    expect(device_.admin(AdminOpcode::format_nvm, nsid_, format), Status::success, "a Format");
    lba_bytes_ = format == 0 ? 512 : 4096;
    ledger_.add(Count::formats);
    const std::uint64_t begin = device_.now_ns();
    while (device_.queue().outstanding() != 0) {
      device_.reap([](std::uint32_t, unsigned) {});
      if (device_.now_ns() - begin > kUnansweredNs)
        throw Wrong("commands across a Format were not answered in a minute");
    }
  }
  void set_protection(std::uint32_t state) {
    const auto feature = static_cast<std::uint32_t>(nvme::Feature::namespace_write_protection);
    expect(device_.admin(AdminOpcode::set_features, nsid_, feature, state), Status::success, "write protection");
  }
  void protect() {
    set_protection(1);
    expect(device_.run(NvmOpcode::write, nsid_, 0, 1), Status::namespace_is_write_protected,
           "a write of what is protected");
    ledger_.add(Count::refused_writes);
    check(number_);
    set_protection(0);
    ledger_.add(Count::protections);
  }

  void write(std::uint64_t number) {
    for (std::uint32_t page = 0; page < pages_; ++page) {
      for (std::uint32_t i = 0; i < kSectorsPerPage; ++i)
        fill_sector(device_.words(0) + i * kSectorWords, plan_.part, page * kSectorsPerPage + i, number);
      const std::uint32_t blocks = kPageBytes / lba_bytes_;
      expect(device_.run(NvmOpcode::write, nsid_, std::uint64_t{page} * blocks, blocks), Status::success, "a write");
      ledger_.add(Count::writes);
    }
  }
  // That all of it is write `number`, or zero where that is 0.
  void check(std::uint64_t number) {
    std::array<std::uint64_t, kSectorWords> right{};
    const std::uint32_t blocks = kPageBytes / lba_bytes_;
    for (std::uint32_t page = 0; page < pages_; ++page) {
      std::memset(device_.words(0), 0xEE, kPageBytes);
      expect(device_.run(NvmOpcode::read, nsid_, std::uint64_t{page} * blocks, blocks), Status::success, "a read");
      for (std::uint32_t i = 0; i < kSectorsPerPage; ++i) {
        if (number != 0) fill_sector(right.data(), plan_.part, page * kSectorsPerPage + i, number);
        if (std::memcmp(device_.words(0) + i * kSectorWords, right.data(), kSectorBytes) != 0)
          throw Wrong("namespace " + std::to_string(nsid_) + ", page " + std::to_string(page) + ": not write " +
                      std::to_string(number) + " of part " + std::to_string(plan_.part));
      }
      ledger_.add(Count::reads);
      ledger_.add(Count::sectors_checked, kSectorsPerPage);
    }
  }

  const HostPlan& plan_;
  Ledger& ledger_;
  Random random_;
  Attachment device_;
  std::uint16_t controller_ = 0;
  std::uint32_t nsid_ = 0;
  std::uint32_t pages_ = 0;
  std::uint32_t lba_bytes_ = 512;
  std::uint64_t number_ = 0;
};

}  // namespace

void run_manager(const HostPlan& plan, Ledger& ledger) { Manager(plan, ledger).run(); }

}  // namespace flashmob::soak

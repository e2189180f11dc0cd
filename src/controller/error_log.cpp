#include "controller/error_log.h"

namespace flashmob::controller {
namespace {

bool lost_data(std::uint16_t status_field) {
  switch (nvme::status_of(static_cast<std::uint16_t>(status_field >> 1))) {
    case nvme::Status::write_fault:
    case nvme::Status::unrecovered_read_error:
    case nvme::Status::guard_check_error:
      return true;
    default:
      return false;
  }
}

}  // namespace

void ErrorLog::record(nvme::ErrorInformationEntry entry) {
  const std::lock_guard lock(mutex_);
  ring_[total_ % kEntries] = entry;
  ring_[total_ % kEntries].error_count = total_ + 1;
  ++total_;
  if (lost_data(entry.status_field)) ++media_errors_;
}

ErrorLog::Page ErrorLog::read() const {
  const std::lock_guard lock(mutex_);
  Page page{};
  const std::uint64_t count = total_ < kEntries ? total_ : kEntries;
  for (std::uint64_t i = 0; i < count; ++i) page[i] = ring_[(total_ - 1 - i) % kEntries];
  return page;
}

std::uint64_t ErrorLog::total() const {
  const std::lock_guard lock(mutex_);
  return total_;
}

std::uint64_t ErrorLog::media_errors() const {
  const std::lock_guard lock(mutex_);
  return media_errors_;
}

}  // namespace flashmob::controller

#include "load/trace_summary.h"

#include <algorithm>
#include <cstddef>
#include <span>

namespace flashmob::load {
namespace {

constexpr std::size_t kNamedDisks = 8;      // in a message
constexpr std::size_t kReportedDisks = 32;  // in a result

std::vector<const TraceDisk*> by_requests(const std::vector<TraceDisk>& disks) {
  std::vector<const TraceDisk*> order;
  for (const TraceDisk& disk : disks) order.push_back(&disk);
  std::stable_sort(order.begin(), order.end(),
                   [](const TraceDisk* a, const TraceDisk* b) { return a->requests > b->requests; });
  return order;
}

std::string with_commas(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

// JSON is UTF-8, and a name may be anything: what is not ASCII is not passed on.
std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) out += c >= 0x20 && c < 0x7F ? c : '?';
  return out;
}

void noted_field(JsonWriter& json, std::string_view key, const TraceSummary::Noted& noted) {
  json.begin_object(key).field("count", noted.count);
  if (noted.count == 0)
    json.null_field("first_line");
  else
    json.field("first_line", noted.first_line);
  json.end_object();
}

void disks_field(JsonWriter& json, const TraceSummary& summary) {
  json.field("disk_count", std::uint64_t{summary.disks.size()}).begin_array("disks");
  const auto order = by_requests(summary.disks);
  for (const TraceDisk* disk : std::span(order).first(std::min(order.size(), kReportedDisks))) {
    json.begin_object()
        .field("name", printable(disk->name))
        .field("requests", disk->requests)
        .field("bytes", disk->bytes)
        .field("end_bytes", disk->end_bytes)
        .field("replayed", disk->replayed);
    if (disk->replayed)
      json.field("offset_bytes", disk->offset_bytes);
    else
      json.null_field("offset_bytes");
    json.end_object();
  }
  json.end_array();
}

}  // namespace

std::string busiest_disks(const std::vector<TraceDisk>& disks) {
  const auto order = by_requests(disks);
  const std::size_t named = order.size() <= kNamedDisks + 1 ? order.size() : kNamedDisks;
  std::string text;
  for (std::size_t i = 0; i < named; ++i) {
    if (i > 0) text += i + 1 == order.size() ? " and " : ", ";
    text += printable(order[i]->name.substr(0, 60)) + " (" + with_commas(order[i]->requests);
    text += i > 0 ? ")" : order[i]->requests == 1 ? " request)" : " requests)";
  }
  if (named < order.size()) text += " and " + with_commas(order.size() - named) + " more";
  return text;
}

std::string quoted_trace_text(std::string_view text) {
  return "\"" + printable(text.substr(0, 60)) + (text.size() > 60 ? "...\"" : "\"");
}

void trace_field(JsonWriter& json, const TraceSummary& s) {
  if (s.format.empty()) {
    json.null_field("trace");
    return;
  }
  json.begin_object("trace").field("path", s.path).field("format", s.format);
  if (s.disk.empty())
    json.null_field("disk");
  else
    json.field("disk", printable(s.disk));
  disks_field(json, s);
  json.field("lines", s.lines)
      .field("ignored_lines", s.ignored)
      .field("requests", s.requests)
      .field("reads", s.reads)
      .field("writes", s.writes)
      .field("trims", s.trims)
      .field("flushes", s.flushes)
      .field("read_bytes", s.read_bytes)
      .field("write_bytes", s.write_bytes)
      .field("trim_bytes", s.trim_bytes)
      .field("span_ns", s.span_ns)
      .field("largest_bytes", s.largest_bytes)
      .field("end_bytes", s.end_bytes)
      .field("left_out", s.left_out);
  noted_field(json, "empty", s.empty);
  noted_field(json, "reordered", s.reordered);
  json.field("namespace_bytes", s.namespace_bytes)
      .field("sized_from_trace", s.sized_from_trace)
      .field("rounded", s.rounded)
      .field("rounded_bytes", s.rounded_bytes)
      .field("wrapped", s.wrapped)
      .field("moved", s.moved)
      .field("shortened", s.shortened)
      .field("split", s.split)
      .field("commands", s.commands)
      .end_object();
}

}  // namespace flashmob::load

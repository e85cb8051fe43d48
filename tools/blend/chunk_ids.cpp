#include "chunk_ids.h"

#include "command.h"

namespace blend_cli {
namespace {

constexpr size_t kIdDigits = 64;
constexpr size_t kLeastDigits = 6;

// The chunk whose id begins with `digits`.
blendpp::ChunkId resolve(const std::vector<blendpp::ChunkId>& ids, const std::string& digits) {
  const blendpp::ChunkId* found = nullptr;
  for (const blendpp::ChunkId& id : ids) {
    if (id.hex().rfind(digits, 0) != 0) continue;
    if (found != nullptr) {
      throw CommandError(kExitUsage, "more than one chunk begins with '" + digits +
                                         "': give more digits of the id");
    }
    found = &id;
  }
  if (found == nullptr) {
    throw CommandError(kExitNotFound,
                       "no chunk begins with '" + digits + "'; `blend store ls` lists the ids");
  }
  return *found;
}

}  // namespace

CLI::Option* add_ids(CLI::App& command, std::vector<std::string>& ids) {
  return command.add_option("ids", ids, "Ids, or their first 6 or more hexadecimal digits")
      ->check([](const std::string& text) -> std::string {
        const bool hex = text.find_first_not_of("0123456789abcdef") == std::string::npos;
        if (hex && text.size() >= kLeastDigits && text.size() <= kIdDigits) return {};
        return "'" + text + "' is not 6 to 64 lower-case hexadecimal digits";
      })
      ->type_name("ID ...");
}

void add_only_tenant(CLI::App& command, OnlyTenant& tenant) {
  command.add_option("--tenant", tenant, "Only this tenant's chunks; \"\": those without a tenant")
      ->type_name("NAME");
}

void list_chunks(const blendpp::Store& store, const OnlyTenant& tenant,
                 const blendpp::ChunkFn& fn) {
  blendpp::FilterOptions filter;
  filter.tenant = tenant;
  store.list(filter, false, fn);
}

std::vector<blendpp::ChunkId> all_ids(const blendpp::Store& store, const OnlyTenant& tenant) {
  std::vector<blendpp::ChunkId> ids;
  list_chunks(store, tenant, [&](const blend_chunk_info& info, const char*) {
    ids.emplace_back(info.id);
    return true;
  });
  return ids;
}

std::vector<blendpp::ChunkId> resolve_ids(const std::vector<blendpp::ChunkId>& present,
                                          const std::vector<std::string>& digits) {
  std::vector<blendpp::ChunkId> ids;
  ids.reserve(digits.size());
  for (const std::string& d : digits) ids.push_back(resolve(present, d));
  return ids;
}

}  // namespace blend_cli

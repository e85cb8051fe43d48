#include "tool_calls.h"

namespace blend_cli::serve {

blendpp::CallReader call_reader(const blendpp::Model& model, const std::string& template_source,
                                const Tools& tools) {
  blendpp::CallReaderOptions options;
  options.template_source = template_source.c_str();
  options.tools = tools.json.c_str();
  if (tools.choice == Tools::Choice::required) options.flags |= BLEND_CALLS_MUST_CALL;
  return {model, options};
}

}  // namespace blend_cli::serve

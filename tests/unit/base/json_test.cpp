// Json: what is read, and what is refused by name and place.
#include "base/json.h"

#include <gtest/gtest.h>

#include "base/json_reader.h"

namespace blend {
namespace {

Json parsed(const std::string& text) {
  auto json = Json::parse(text);
  EXPECT_TRUE(json.is_ok()) << text << ": " << json.status().message();
  return json.is_ok() ? std::move(*json) : Json();
}

void expect_refused(const std::string& text, const std::string& part) {
  const auto json = Json::parse(text);
  ASSERT_FALSE(json.is_ok()) << text.substr(0, 80);
  EXPECT_EQ(json.status().code(), BLEND_E_FORMAT);
  EXPECT_NE(json.status().message().find(part), std::string::npos) << json.status().message();
}

TEST(Json, Values) {
  const Json j = parsed(R"({"a": [1, -2, 3.5, 1e3, true, null, "x\u00e9\ud83d\ude00"], "b": {}})");
  ASSERT_NE(j.find("a"), nullptr);
  const Json::Array& a = *j.find("a")->array();
  int64_t i = 0;
  double d = 0;
  EXPECT_TRUE(a[0].integer(i) && i == 1);
  EXPECT_TRUE(a[1].integer(i) && i == -2);
  EXPECT_FALSE(a[2].integer(i));
  EXPECT_TRUE(a[2].number(d) && d == 3.5);
  EXPECT_TRUE(a[3].integer(i) && i == 1000) << "whole numbers may be written with an exponent";
  EXPECT_TRUE(*a[4].boolean());
  EXPECT_TRUE(a[5].is_null());
  EXPECT_EQ(*a[6].string(), "xé😀");
  EXPECT_NE(j.find("b")->object(), nullptr);
  EXPECT_EQ(j.find("c"), nullptr);
  EXPECT_EQ(a[0].find("c"), nullptr);
  EXPECT_FALSE(parsed("18446744073709551615").integer(i)) << "past int64_t";
}

TEST(Json, OrderIsTheFiles) {
  const Json j = parsed(R"({"z": 1, "a": 2, "m": 3})");
  EXPECT_EQ((*j.object())[0].first, "z");
  EXPECT_EQ((*j.object())[2].first, "m");
}

TEST(Json, Refused) {
  expect_refused("", "byte 1");
  expect_refused("{\"a\": 1", "byte 8");
  expect_refused("{} x", "byte 4");
  expect_refused("{\"a\": 1, \"a\": 2}", "'a' stands twice");
  expect_refused("\"\xff\"", "byte 2");
  expect_refused("1e999", "byte 5");
  expect_refused("[NaN]", "byte 2");
  expect_refused(std::string(1000000, '['), "64 deep");
  EXPECT_TRUE(Json::parse(std::string(64, '[') + std::string(64, ']')).is_ok());
  EXPECT_FALSE(Json::parse(std::string(65, '[') + std::string(65, ']')).is_ok());
}

TEST(JsonView, ErrorsNameThePath) {
  const Json j = parsed(R"({"a": {"b": [1, "two"]}})");
  const JsonView root(j, "");
  const JsonView b = root.need("a").value().need("b").value();
  EXPECT_EQ(b.element(1).string().value(), "two");
  EXPECT_NE(b.element(0).string().status().message().find("a.b[0] is an integer"),
            std::string::npos);
  EXPECT_NE(b.element(0).integer(2, 5).status().message().find("a.b[0] is 1; 2 to 5"),
            std::string::npos);
  EXPECT_NE(root.need("x").status().message().find("'x' is missing"), std::string::npos);
  EXPECT_NE(b.need("x").status().message().find("a.b is an array"), std::string::npos);
  EXPECT_EQ(root.string_or("x", "y").value(), "y");
}

TEST(JsonView, WhatIsPositiveIsSoAsAFloat) {
  const Json j = parsed("[0.5, 0, -1, 1e39, 1e-50]");
  const JsonView list(j, "scales");
  EXPECT_EQ(list.element(0).positive().value(), 0.5f);
  for (size_t i = 1; i < 5; ++i) {
    EXPECT_EQ(list.element(i).positive().status().message(),
              "scales[" + std::to_string(i) + "]: it must be a finite number above 0");
  }
}

TEST(JsonView, ACountIsFromOneToItsMost) {
  const Json j = parsed(R"({"heads": 8, "none": 0, "null": null})");
  const JsonView root(j, "");
  EXPECT_EQ(root.count_or("heads", 2, 8).value(), 8u);
  EXPECT_EQ(root.count_or("null", 2, 8).value(), 2u);
  EXPECT_EQ(root.count_or("heads", 2, 7).status().message(), "heads is 8; 1 to 7 make sense");
  EXPECT_EQ(root.count_or("none", 2, 7).status().message(), "none is 0; 1 to 7 make sense");
}

}  // namespace
}  // namespace blend

package io.libblend;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** What the raw module calls to make an exception of a call's outcome; see typemaps.i. */
final class RawErrors {
  private RawErrors() {}

  private static final Pattern NAME = Pattern.compile("\\b(?:blend|BLEND)_\\w+");

  static RuntimeException make(int code, long detail, byte[] message) {
    return Exceptions.of(code, detail, spoken(Text.of(message)));
  }

  /** A sentence of the library, with Java's names of what it calls by its name in C. */
  static String spoken(String message) {
    return NAME.matcher(message)
        .replaceAll(
            found ->
                Matcher.quoteReplacement(Names.OF.getOrDefault(found.group(), found.group())));
  }
}

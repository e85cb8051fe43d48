import java.util.LinkedHashMap;
import java.util.Map;

/** As much JSON as the service needs: flat objects of texts, numbers, true, false and null. */
final class Json {
  private final String text;
  private int at;

  private Json(String text) {
    this.text = text;
  }

  static String quote(String text) {
    StringBuilder out = new StringBuilder("\"");
    for (char c : text.toCharArray()) {
      switch (c) {
        case '"' -> out.append("\\\"");
        case '\\' -> out.append("\\\\");
        case '\n' -> out.append("\\n");
        default -> out.append(c < ' ' ? String.format("\\u%04x", (int) c) : String.valueOf(c));
      }
    }
    return out.append('"').toString();
  }

  /** Throws IllegalArgumentException for text that is not such an object. */
  static Map<String, Object> object(String text) {
    Json json = new Json(text);
    Map<String, Object> members = new LinkedHashMap<>();
    json.expect('{');
    if (!json.take('}')) {
      do {
        String name = json.string();
        json.expect(':');
        members.put(name, json.value());
      } while (json.take(','));
      json.expect('}');
    }
    json.space();
    if (json.at < text.length()) {
      throw json.wrong("more behind the object");
    }
    return members;
  }

  private IllegalArgumentException wrong(String what) {
    return new IllegalArgumentException(what + " at character " + at);
  }

  private void space() {
    while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
      ++at;
    }
  }

  private boolean take(char c) {
    space();
    if (at < text.length() && text.charAt(at) == c) {
      ++at;
      return true;
    }
    return false;
  }

  private void expect(char c) {
    if (!take(c)) {
      throw wrong("'" + c + "' was expected");
    }
  }

  private Object value() {
    space();
    if (at < text.length() && text.charAt(at) == '"') {
      return string();
    }
    int begin = at;
    while (at < text.length() && ",} \t\r\n".indexOf(text.charAt(at)) < 0) {
      ++at;
    }
    String word = text.substring(begin, at);
    switch (word) {
      case "true", "false":
        return Boolean.valueOf(word);
      case "null":
        return null;
      default:
        try {
          return Double.valueOf(word);
        } catch (NumberFormatException e) {
          throw wrong("a text, a number, true, false or null was expected");
        }
    }
  }

  private String string() {
    expect('"');
    StringBuilder out = new StringBuilder();
    while (at < text.length() && text.charAt(at) != '"') {
      char c = text.charAt(at++);
      if (c != '\\') {
        out.append(c);
        continue;
      }
      if (at == text.length()) {
        break;
      }
      char escaped = text.charAt(at++);
      switch (escaped) {
        case 'n' -> out.append('\n');
        case 't' -> out.append('\t');
        case 'r' -> out.append('\r');
        case 'b' -> out.append('\b');
        case 'f' -> out.append('\f');
        case '"', '\\', '/' -> out.append(escaped);
        case 'u' -> {
          if (at + 4 > text.length()) {
            throw wrong("four hexadecimal digits were expected");
          }
          out.append((char) Integer.parseInt(text.substring(at, at + 4), 16));
          at += 4;
        }
        default -> throw wrong("no such escape");
      }
    }
    if (at == text.length()) {
      throw wrong("a text is not ended");
    }
    ++at;
    return out.toString();
  }
}

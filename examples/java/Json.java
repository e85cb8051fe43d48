import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** As much JSON as the services need. Objects are maps, arrays are lists, numbers are doubles. */
final class Json {
  private static final int DEEPEST = 16;

  private final String text;
  private int at;
  private int depth;

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

  /** What {@link #object} reads, written again. */
  static String write(Object value) {
    if (value instanceof Map<?, ?> members) {
      return members.entrySet().stream()
          .map(member -> quote((String) member.getKey()) + ": " + write(member.getValue()))
          .collect(Collectors.joining(", ", "{", "}"));
    }
    if (value instanceof List<?> elements) {
      return elements.stream().map(Json::write).collect(Collectors.joining(", ", "[", "]"));
    }
    if (value instanceof Double number && number == Math.rint(number) && Math.abs(number) < 1e15) {
      return String.valueOf(number.longValue());
    }
    return value instanceof String text ? quote(text) : String.valueOf(value);
  }

  /** Throws IllegalArgumentException for text that is not such an object. */
  static Map<String, Object> object(String text) {
    Json json = new Json(text);
    Map<String, Object> members = json.members();
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

  /** The text of this name. Throws IllegalArgumentException where there is none. */
  static String text(Map<String, Object> object, String name) {
    return as(String.class, object.get(name), name);
  }

  /** The texts of this name; none where it is not there. */
  static List<String> texts(Map<String, Object> object, String name) {
    return list(object, name).stream().map(one -> as(String.class, one, name)).toList();
  }

  /** The objects of this name; likewise. */
  static List<Map<String, Object>> objects(Map<String, Object> object, String name) {
    List<Map<String, Object>> all = new ArrayList<>();
    for (Object one : list(object, name)) {
      Map<String, Object> members = new LinkedHashMap<>();
      Map<?, ?> read = as(Map.class, one, name);
      read.forEach((key, value) -> members.put((String) key, value));
      all.add(members);
    }
    return all;
  }

  private static List<?> list(Map<String, Object> object, String name) {
    return object.get(name) == null ? List.of() : as(List.class, object.get(name), name);
  }

  private static <T> T as(Class<T> kind, Object value, String name) {
    if (!kind.isInstance(value)) {
      throw new IllegalArgumentException("'" + name + "' is not what it should be");
    }
    return kind.cast(value);
  }

  private Map<String, Object> members() {
    Map<String, Object> members = new LinkedHashMap<>();
    descend();
    expect('{');
    if (!take('}')) {
      do {
        String name = string();
        expect(':');
        members.put(name, value());
      } while (take(','));
      expect('}');
    }
    --depth;
    return members;
  }

  private List<Object> elements() {
    List<Object> elements = new ArrayList<>();
    descend();
    expect('[');
    if (!take(']')) {
      do {
        elements.add(value());
      } while (take(','));
      expect(']');
    }
    --depth;
    return elements;
  }

  private void descend() {
    if (++depth > DEEPEST) {
      throw wrong("it is too deep");
    }
  }

  private Object value() {
    space();
    if (at < text.length() && text.charAt(at) == '"') {
      return string();
    }
    if (at < text.length() && text.charAt(at) == '{') {
      return members();
    }
    if (at < text.length() && text.charAt(at) == '[') {
      return elements();
    }
    int begin = at;
    while (at < text.length() && ",}] \t\r\n".indexOf(text.charAt(at)) < 0) {
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

package io.libblend;

import java.time.Instant;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Consumer;

/**
 * Something that happened and is the failure of no call: a store was opened, a chunk was evicted, a server of the
 * remote tier does not answer.
 *
 * @param level how important it is
 * @param code a BLEND_EVENT_* of log.h, or a negative BLEND_E_* of what failed
 * @param name of the code: "BLEND_EVENT_EVICTED"
 * @param component "context", "model", "profile", "store", "remote" or "fuse"
 * @param message one sentence
 * @param fields what is told besides, as {@code String}, {@code Long} or {@code Double}. No record has texts of
 *     documents, prompts or answers
 * @param time when it was made
 */
public record LogRecord(
    LogLevel level,
    int code,
    String name,
    String component,
    String message,
    Map<String, Object> fields,
    Instant time) {

  /**
   * Gives records to a logger of the platform, which is that of {@code java.util.logging} unless the application has
   * another: {@code options.log(LogRecord.to(System.getLogger("libblend")))}.
   *
   * @param logger gets the message, and after it the fields
   * @return to be given to {@link Context.Options#log}
   */
  public static Consumer<LogRecord> to(System.Logger logger) {
    return record -> logger.log(record.systemLevel(), record::toString);
  }

  /**
   * The level as the platform's loggers have it.
   *
   * @return ERROR, WARNING, INFO or DEBUG
   */
  public System.Logger.Level systemLevel() {
    return switch (level) {
      case ERROR -> System.Logger.Level.ERROR;
      case WARNING -> System.Logger.Level.WARNING;
      case DEBUG -> System.Logger.Level.DEBUG;
      default -> System.Logger.Level.INFO;
    };
  }

  /** The message, and the fields in brackets. */
  @Override
  public String toString() {
    return fields.isEmpty() ? message : message + " " + fields;
  }

  static LogRecord of(RawLogRecord raw) {
    Map<String, Object> fields = new LinkedHashMap<>();
    for (long i = 0; i < raw.nFields(); ++i) {
      int type = raw.fieldType(i);
      Object value =
          type == RawConstants.FIELD_TEXT
              ? raw.fieldText(i)
              : type == RawConstants.FIELD_INTEGER ? (Object) raw.fieldInteger(i) : (Object) raw.fieldNumber(i);
      fields.put(raw.fieldKey(i), value);
    }
    long ns = raw.timeUnixNs();
    return new LogRecord(
        LogLevel.of(raw.level()),
        raw.code(),
        raw.name(),
        raw.component(),
        RawErrors.spoken(raw.message()),
        Collections.unmodifiableMap(fields),
        Instant.ofEpochSecond(ns / 1_000_000_000, ns % 1_000_000_000));
  }
}

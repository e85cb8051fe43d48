package io.libblend;

/**
 * Messages and documents, for {@link Model#chat}. Control tokens are recognized in what the template
 * writes; these texts are text, whatever they contain. For one thread.
 */
public final class Chat {
  final RawChat raw = new RawChat();

  /** Empty. */
  public Chat() {}

  /**
   * One turn.
   *
   * @param role as the template knows it: system, user, assistant
   * @param content what was said
   * @return this
   */
  public Chat message(String role, String content) {
    return message(role, content, "");
  }

  /**
   * A turn with calls of functions, or a result of one.
   *
   * @param role as the template knows it: assistant, tool
   * @param content what was said
   * @param members a JSON object: what the message has besides, such as {"tool_calls": [...]} or
   *     {"tool_call_id": "a1"}, as OpenAI's API has them; empty: nothing
   * @return this
   */
  public Chat message(String role, String content, String members) {
    raw.addMessage(role, content, members);
    return this;
  }

  /**
   * What the answer is to be found in: a chunk. Where the template has no place for documents they
   * stand before the last message of the role user.
   *
   * @param text of it
   * @return this
   */
  public Chat document(String text) {
    return document(text, "");
  }

  /**
   * The same, for templates that write titles.
   *
   * @param text of it
   * @param title of it
   * @return this
   */
  public Chat document(String text, String title) {
    raw.addDocument(text, title);
    return this;
  }

  /**
   * A document that is a stored chunk.
   *
   * @param id 64 hexadecimal digits
   * @return this
   */
  public Chat storedDocument(String id) {
    raw.addStoredDocument(id);
    return this;
  }
}

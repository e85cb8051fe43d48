package io.libblend;

/** How a conversation is put by a chat template. Not thread-safe while it is set. */
public final class ChatOptions {
  final RawChatOptions raw = new RawChatOptions();
  Cancel cancel;

  /** The model's template; the assistant is to speak next. */
  public ChatOptions() {}

  /**
   * What stops the call, besides an interrupt of its thread.
   *
   * @param token null: nothing else
   * @return this
   */
  public ChatOptions cancel(Cancel token) {
    cancel = token;
    return this;
  }

  // blend:setters chat_options
}

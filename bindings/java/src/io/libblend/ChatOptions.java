package io.libblend;

/** How a conversation is put by a chat template. Not thread-safe while it is set. */
public final class ChatOptions {
  final RawChatOptions raw = new RawChatOptions();

  /** The model's template; the assistant is to speak next. */
  public ChatOptions() {}

  // blend:setters chat_options
}

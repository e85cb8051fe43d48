package io.libblend;

/**
 * One generated token.
 *
 * @param id of it
 * @param text that it completes: whole characters, or "" while one is incomplete
 */
public record Token(int id, String text) {}

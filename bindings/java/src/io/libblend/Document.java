package io.libblend;

import java.util.List;

/**
 * What an answer is to be found in: a passage of a few hundred tokens. White space at its ends does not count.
 *
 * @param text of it
 * @param title for chat templates that write titles, and the label of the stored chunk; "" for no title
 */
public record Document(String text, String title) {
  /**
   * Documents without titles.
   *
   * @param texts of them
   * @return one each
   */
  public static List<Document> of(List<String> texts) {
    return texts.stream().map(text -> new Document(text, "")).toList();
  }

  static RawTexts raw(List<Document> documents) {
    RawTexts raw = new RawTexts();
    documents.forEach(document -> raw.addDocument(document.text(), document.title()));
    return raw;
  }
}

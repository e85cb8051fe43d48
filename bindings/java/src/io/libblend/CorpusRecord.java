package io.libblend;

import java.util.ArrayList;
import java.util.List;

/**
 * What became of one text of a corpus.
 *
 * @param id 64 hexadecimal digits, of the contextual record, or of the one after the head alone
 * @param existed whether it was there already: nothing was computed
 * @param contexts passages of the contextual record; 0: there is none, since no other chunk is similar
 */
public record CorpusRecord(String id, boolean existed, int contexts) {
  static List<CorpusRecord> of(RawCorpusRecords raw) {
    try {
      List<CorpusRecord> records = new ArrayList<>();
      for (long i = 0; i < raw.size(); ++i) {
        records.add(new CorpusRecord(raw.id(i), raw.existed(i), raw.nContexts(i)));
      }
      return records;
    } finally {
      raw.delete();
    }
  }
}

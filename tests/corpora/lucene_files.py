"""Lucene indexes for tests, written by Lucene's own writer."""

from corpora.java import java_class


def write_index(folder, documents, column):
    """An index by Lucene's own writer; documents: (id, contents, other stored fields); column: of ids to sort by."""
    lucene = "org.apache.lucene"
    directory = java_class(f"{lucene}.store.FSDirectory").open(java_class("java.nio.file.Paths").get(str(folder)))
    analyzer = java_class("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
    config = java_class(f"{lucene}.index.IndexWriterConfig")(analyzer)
    writer = java_class(f"{lucene}.index.IndexWriter")(directory, config)
    store = java_class(f"{lucene}.document.Field$Store")
    for docid, contents, stored in documents:
        document = java_class(f"{lucene}.document.Document")()
        document.add(java_class(f"{lucene}.document.StringField")("id", docid, store.YES))
        if column:
            value = java_class(f"{lucene}.util.BytesRef")(list(docid.encode()))
            document.add(java_class(f"{lucene}.document.BinaryDocValuesField")("id", value))
        document.add(java_class(f"{lucene}.document.TextField")("contents", contents, store.NO))
        for name, value in stored.items():
            document.add(java_class(f"{lucene}.document.StoredField")(name, value))
        writer.addDocument(document)
    writer.close()
    return folder

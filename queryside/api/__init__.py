"""The query API over HTTP: filters, cursors and answers, over the ports of `queryside`."""

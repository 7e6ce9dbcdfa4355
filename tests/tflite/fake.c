/* Stands in for a TensorFlow Lite of another version: it has the names and answers nothing else. */
struct TfLiteInterpreter;
struct TfLiteDelegate;

__attribute__((visibility("default"))) const char *TfLiteVersion(void);
__attribute__((visibility("default"))) int
TfLiteInterpreterGetOutputTensorCount(const struct TfLiteInterpreter *);
__attribute__((visibility("default"))) const void *
TfLiteInterpreterGetOutputTensor(const struct TfLiteInterpreter *, int);
__attribute__((visibility("default"))) int
TfLiteInterpreterModifyGraphWithDelegate(const struct TfLiteInterpreter *, struct TfLiteDelegate *);

const char *TfLiteVersion(void)
{
    return FAKE_VERSION;
}

int TfLiteInterpreterGetOutputTensorCount(const struct TfLiteInterpreter *interpreter)
{
    (void)interpreter;
    return 0;
}

const void *TfLiteInterpreterGetOutputTensor(const struct TfLiteInterpreter *interpreter, int index)
{
    (void)interpreter, (void)index;
    return 0;
}

int TfLiteInterpreterModifyGraphWithDelegate(const struct TfLiteInterpreter *interpreter,
                                             struct TfLiteDelegate *delegate)
{
    (void)interpreter, (void)delegate;
    return FAKE_STATUS;
}

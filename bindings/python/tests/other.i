// Another project's module in the same process.
%module other
%inline %{
namespace other_project {
class Cancel {
 public:
  explicit Cancel(int number) : number_(number) {}
  int number() const { return number_; }
 private:
  int number_;
};
inline int number_of(const Cancel& cancel) { return cancel.number(); }
}
%}

"""Names of weekdays and months by language, and the catalogue of the library that goes with them.

The library takes these names from the locale of the process, which an installation may not have.
Languages that bend a name by its place in the sentence are left out.
"""

from typing import Final, NamedTuple


class Language(NamedTuple):
    """The library's catalogue, and names from Monday and from January."""

    catalogue: str
    weekdays: tuple[str, ...]
    months: tuple[str, ...]


def _language(catalogue: str, weekdays: str, months: str) -> Language:
    return Language(catalogue, tuple(weekdays.split(",")), tuple(months.split(",")))


ENGLISH: Final = _language(
    "en_US",
    "Monday,Tuesday,Wednesday,Thursday,Friday,Saturday,Sunday",
    "January,February,March,April,May,June,July,August,September,October,November,December",
)
LANGUAGES: Final[dict[str, Language]] = {
    "da": _language(
        "da_DK",
        "mandag,tirsdag,onsdag,torsdag,fredag,lørdag,søndag",
        "januar,februar,marts,april,maj,juni,juli,august,september,oktober,november,december",
    ),
    "de": _language(
        "de_DE",
        "Montag,Dienstag,Mittwoch,Donnerstag,Freitag,Samstag,Sonntag",
        "Januar,Februar,März,April,Mai,Juni,Juli,August,September,Oktober,November,Dezember",
    ),
    "en": ENGLISH,
    "es": _language(
        "es_ES",
        "lunes,martes,miércoles,jueves,viernes,sábado,domingo",
        "enero,febrero,marzo,abril,mayo,junio,julio,agosto,septiembre,octubre,noviembre,diciembre",
    ),
    "fr": _language(
        "fr_FR",
        "lundi,mardi,mercredi,jeudi,vendredi,samedi,dimanche",
        "janvier,février,mars,avril,mai,juin,juillet,août,septembre,octobre,novembre,décembre",
    ),
    "it": _language(
        "it_IT",
        "lunedì,martedì,mercoledì,giovedì,venerdì,sabato,domenica",
        "gennaio,febbraio,marzo,aprile,maggio,giugno,luglio,agosto,settembre,ottobre,novembre,"
        "dicembre",
    ),
    "ja": _language(
        "ja_JP",
        "月曜日,火曜日,水曜日,木曜日,金曜日,土曜日,日曜日",
        "1月,2月,3月,4月,5月,6月,7月,8月,9月,10月,11月,12月",
    ),
    "ko": _language(
        "ko_KR",
        "월요일,화요일,수요일,목요일,금요일,토요일,일요일",
        "1월,2월,3월,4월,5월,6월,7월,8월,9월,10월,11월,12월",
    ),
    "nb": _language(
        "nb_NO",
        "mandag,tirsdag,onsdag,torsdag,fredag,lørdag,søndag",
        "januar,februar,mars,april,mai,juni,juli,august,september,oktober,november,desember",
    ),
    "nl": _language(
        "nl_NL",
        "maandag,dinsdag,woensdag,donderdag,vrijdag,zaterdag,zondag",
        "januari,februari,maart,april,mei,juni,juli,augustus,september,oktober,november,december",
    ),
    "pt": _language(
        "pt_PT",
        "segunda-feira,terça-feira,quarta-feira,quinta-feira,sexta-feira,sábado,domingo",
        "janeiro,fevereiro,março,abril,maio,junho,julho,agosto,setembro,outubro,novembro,dezembro",
    ),
    "sv": _language(
        "sv_SE",
        "måndag,tisdag,onsdag,torsdag,fredag,lördag,söndag",
        "januari,februari,mars,april,maj,juni,juli,augusti,september,oktober,november,december",
    ),
    "vi": _language(
        "vi_VN",
        "thứ Hai,thứ Ba,thứ Tư,thứ Năm,thứ Sáu,thứ Bảy,Chủ nhật",
        "tháng 1,tháng 2,tháng 3,tháng 4,tháng 5,tháng 6,tháng 7,tháng 8,tháng 9,tháng 10,"
        "tháng 11,tháng 12",
    ),
    "zh": _language(
        "zh_CN",
        "星期一,星期二,星期三,星期四,星期五,星期六,星期日",
        "一月,二月,三月,四月,五月,六月,七月,八月,九月,十月,十一月,十二月",
    ),
    "zh-TW": _language(
        "zh_TW",
        "星期一,星期二,星期三,星期四,星期五,星期六,星期日",
        "一月,二月,三月,四月,五月,六月,七月,八月,九月,十月,十一月,十二月",
    ),
}
